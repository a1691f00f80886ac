# Tables of this platform's results for a paper or a proposal.
EXPORTED = inputs.exported(SETTINGS.platform, SETTINGS.blocks)
EXPORTS = (
    expand(
        "results/exports/{platform}/scaling.{suffix}",
        platform=SETTINGS.platform,
        suffix=("csv", "md", "tex", "pdf"),
    )
    if EXPORTED
    else []
)

if EXPORTED:

    localrules:
        exports,

    rule exports:
        input:
            results=EXPORTED,
            code=inputs.of_exports(),
        output:
            update(EXPORTS),  # the last tables stay until there are new ones
        log:
            "results/logs/exports.log",
        resources:
            machine=10,
        message:
            "write the tables of scaling"
        shell:
            "python -m scalecard export scaling --results {input.results:q} --output {output:q} 2>&1 | tee {log:q}"
