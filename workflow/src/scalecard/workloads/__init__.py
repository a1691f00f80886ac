"""What is trained: the built-in workloads and the user's, their data, and the plain loop that trains one."""
