# The image of the Dockerfile with further packages on top: `container.packages` of config.yaml. Its context is a folder
# with what is copied here (the workflow makes it), so that a change of the packages builds nothing else.
#   docker build --build-arg SCALECARD_IMAGE=... FOLDER
ARG SCALECARD_IMAGE

FROM ${SCALECARD_IMAGE}
ARG SOURCE_DATE_EPOCH
USER 0:0
COPY packages.sh packages.lock /opt/packages/
RUN bash /opt/packages/packages.sh /opt/scalecard && rm -r /opt/packages
ARG PACKAGES_HASH=unknown
LABEL scalecard.packages="${PACKAGES_HASH}"
ENV SCALECARD_PACKAGES=${PACKAGES_HASH}
USER 65534:65534
