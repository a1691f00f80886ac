"""The container that experiments run in.

engines.py    finds which of Docker, Podman and Apptainer answers here; reads and writes the file that names its image
build.py      chooses the engine, and builds an image from docker/, with further packages, or takes a given one
inside.py     says what a container gets of the host: variables, mounts, GPUs, network
oci.py        makes that a command line of Docker or Podman
apptainer.py  makes it one of Apptainer
launch.py     runs a command in the image that a marker names, or in the host's environment; tries whether it works
"""
