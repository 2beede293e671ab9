"""Small models that need no hub: made-up pairs, SmolLM2 from a package, and derived drafts.

Owns nothing but this description; importing it loads neither torch nor transformers.
"""
