"""WikiText-2 language modelling: corpus, vocabularies, windows, the Lightning data module, tables and figures."""
