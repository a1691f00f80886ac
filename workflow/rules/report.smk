# Everything that was measured, on every platform, in one HTML file; and that with the files beside it, to be sent.
rule report:
    input:
        results=all_results,
        figures=expand("results/figures/{name}.html", name=FIGURES),
        figure_files=expand(
            "results/figures/{name}.{suffix}", name=FIGURES, suffix=FIGURE_FILES
        ),
        history=HISTORY,
        trend=["results/figures/trend.html"] if HISTORY else [],
        exports=EXPORTS,
        code=inputs.of_report(),
    output:
        html=report(
            update(
                "results/report.html"
            ),  # the last report stays until there is a new one
            caption="../report/report.rst",
            category="Report",
        ),
        archive=update("results/report.zip"),
        left_out=update("results/logs/report/left_out.json"),
    log:
        "results/logs/report.log",
    resources:
        machine=10,
    params:
        figures=folder_of_figures,
        show=json.dumps(config.get("show")),
        answers=json.dumps(ANSWER_SETTINGS),
    message:
        "write the report"
    shell:
        "$DRAW python -m scalecard report --results {input.results:q} --figures {params.figures:q}"
        " --history {input.history:q} --exports {input.exports:q} --show {params.show:q}"
        " --answers {params.answers:q} --left-out {output.left_out:q} --archive {output.archive:q}"
        " --output {output.html:q} 2>&1 | tee {log:q}"


# A first report, of what is measured first: within a quarter of an hour on GPUs.
rule first_look:
    input:
        results=[f"{HERE}/{name}.json" for name in FIRST_LOOK],
        figures=[f"results/figures/{name}.html" for name in FIRST_LOOK],
        code=inputs.of_report(),
    output:
        html=update("results/first_look.html"),
    log:
        "results/logs/first_look.log",
    resources:
        machine=10,
    params:
        figures=folder_of_figures,
    message:
        "write the first report"
    shell:
        "$DRAW python -m scalecard report --results {input.results:q} --figures {params.figures:q} --show '[]'"
        " --output {output.html:q} 2>&1 | tee {log:q}"
