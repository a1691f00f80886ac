"""The container that experiments run in.

engines.py   finds which of Docker, Podman and Apptainer answers here
build.py     builds an image from docker/
marker.py    reads and writes the file that names the image
choose.py    combines these: the image that config.yaml asks for, or the host's environment
launch.py    runs a command in the image that a marker names, or in the host's environment
"""
