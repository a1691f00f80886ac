# This platform's results in other formats. The description of them all is always there; a format that fails is not.
CRATE = f"results/exports/{SETTINGS.platform}/{exports.CRATE}"


localrules:
    exports,


rule exports:
    input:
        results=MEASURED,
        code=inputs.of_exports(),
    output:
        crate=update(CRATE),  # the last ones stay until there are new ones
        left_out="results/logs/exports_left_out.json",
    log:
        "results/logs/exports.log",
    resources:
        machine=10,
    params:
        folder=folder_of_exports,
    message:
        "write what one takes along"
    shell:
        "python -m scalecard export --results {input.results:q} --output {params.folder:q} --left-out {output.left_out:q} 2>&1 | tee {log:q}"
