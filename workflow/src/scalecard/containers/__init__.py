"""The container: which engine answers, building the image, and running a command in it. Standard library only.

engines.py   which of Docker, Podman and Apptainer answers here
build.py     from docker/ to an image, and its marker
launch.py    a command in the image that a marker names, or in the host's environment
"""
