FIGURE_FILES = ["png", "pdf", "column.pdf", "csv"]  # beside the SVG


# One figure per experiment, with every platform that has a result of it, and one per question about this platform: for
# papers, as the data it shows, and as the panels that the report includes.
rule figure:
    input:
        results=results_of,
        code=code_of_figure,
    output:
        svg=report(
            update(
                "results/figures/{name}.svg"
            ),  # the last figure stays until there is a new one
            caption="../report/caption.rst",
            category="Figures",
            labels={"experiment": "{name}"},
        ),
        others=update(
            expand(
                "results/figures/{{name}}.{suffix}",
                suffix=[*FIGURE_FILES, "html"],
            )
        ),
    log:
        "results/logs/figures/{name}.log",
    resources:
        machine=10,
    params:
        title=title_of,
        show=json.dumps(config.get("show")),
        answers=settings_of,
    message:
        "draw the figure of {wildcards.name}"
    shell:
        "$DRAW python -m scalecard plot {wildcards.name:q} --results {input.results:q}"
        " --show {params.show:q} --answers {params.answers:q} --output {output.svg:q} {output.others:q} 2>&1 | tee {log:q}"


# One figure of all kept nights, if any were kept. `figure` could make a file of this name too.
if HISTORY:

    localrules:
        trend,

    ruleorder: trend > figure

    rule trend:
        input:
            history=HISTORY,
            code=inputs.of_trend(),
        output:
            svg=report(
                update("results/figures/trend.svg"),
                caption="../report/caption.rst",
                category="Figures",
                labels={"experiment": "trend"},
            ),
            others=update(["results/figures/trend.png", "results/figures/trend.html"]),
        log:
            "results/logs/figures/trend.log",
        resources:
            machine=10,
        params:
            platform=SETTINGS.platform,
            title="How did each number go from night to night?",
        message:
            "draw the figure of the kept nights"
        shell:
            "$DRAW python -m scalecard trend {params.platform:q} --figure {output.svg:q} {output.others:q} 2>&1 | tee {log:q}"
