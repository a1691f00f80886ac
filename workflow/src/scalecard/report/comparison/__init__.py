"""Two sets of results side by side, case by case: sentences, tables, and the report's section."""
