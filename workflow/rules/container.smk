# The image that the experiments run in, or a marker that says that they run in the host's environment. It depends only
# on the dependencies: editing the project's code rebuilds nothing.
MARKER = f"{HERE}/container.json"

if workflow.is_main_process and launch.forget_if_gone(Path(MARKER)):
    logger.warning(
        f"The image of {MARKER} is gone; it will be rebuilt when an experiment needs it."
    )


rule container:
    input:
        image=inputs.of_image(),
        packages=build.package_inputs(config["container"]),
    output:
        marker=MARKER,
    log:
        f"results/logs/{SETTINGS.platform}/container.log",
    resources:
        machine=100,
    params:
        settings=build.hidden(json.dumps(config["container"])),
        shared=["--shared"] if config["cluster"] != "none" or config["hosts"] else [],
    message:
        "choose the container engine, and build or find the image"
    shell:
        "python -m scalecard container {params.shared:q} --output {output.marker:q} 2>&1 | tee {log:q}"
