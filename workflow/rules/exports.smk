# This platform's exports. The report links the first files; an archive describes all of them.
EXPORTS = expand(
    "results/exports/{platform}/{file}",
    platform=SETTINGS.platform,
    file=exports.linked(SETTINGS.blocks),
)
BESIDE_EXPORTS = expand(
    "results/exports/{platform}/{file}",
    platform=SETTINGS.platform,
    file=exports.beside(SETTINGS.blocks),
)


localrules:
    exports,


rule exports:
    input:
        results=MEASURED,
        code=inputs.of_exports(),
    output:
        update(EXPORTS + BESIDE_EXPORTS),  # the last ones stay until there are new ones
    log:
        "results/logs/exports.log",
    resources:
        machine=10,
    params:
        folder=folder_of_exports,
    message:
        "write the exports"
    shell:
        "$DRAW python -m scalecard export --results {input.results:q} --output {params.folder:q} 2>&1 | tee {log:q}"
