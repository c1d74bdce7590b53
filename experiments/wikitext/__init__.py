"""WikiText-2 language modelling: corpus, vocabularies, windows and the Lightning data module."""
