# The lock without PyTorch and its CUDA libraries, where those that are there stay: for `make OWN_TORCH=1`, and in an image
# whose base has them (install.sh).
/^[a-z]/ { kept = !/^(torch|triton|cuda-|nvidia-)/ || /^nvidia-ml-py/ }
kept
