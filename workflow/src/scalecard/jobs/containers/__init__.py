"""The container that experiments run in.

engines.py   which of Docker, Podman and Apptainer answers here
build.py     from docker/ to an image
marker.py    the file that says which image it is
choose.py    all of these together: the image that config.yaml asks for, or the host's environment
launch.py    runs a command in the image that a marker names, or in the host's environment
"""
