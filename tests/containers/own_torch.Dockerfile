# A base image with a PyTorch for CUDA 12, which only PyTorch's own index has: this stands for it, in all that building an
# image asks of it.
ARG BASE
FROM ${BASE}
RUN apt-get update --quiet && apt-get install --quiet --yes --no-install-recommends python3-venv
WORKDIR /usr/local/lib/python3.11/dist-packages
RUN mkdir torch torchvision torch-2.11.0+cu128.dist-info torchvision-0.26.0+cu128.dist-info \
 && echo "from torch import version" >torch/__init__.py \
 && echo "cuda = '12.8'" >torch/version.py \
 && touch torchvision/__init__.py \
 && printf 'Metadata-Version: 2.1\nName: torch\nVersion: 2.11.0+cu128\n' >torch-2.11.0+cu128.dist-info/METADATA \
 && printf 'Metadata-Version: 2.1\nName: torchvision\nVersion: 0.26.0+cu128\n' >torchvision-0.26.0+cu128.dist-info/METADATA
