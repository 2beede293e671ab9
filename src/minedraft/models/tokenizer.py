"""The tokenizer of the made-up models: byte-level BPE that fills any vocabulary from 259 on.

Does not train on text: the merges are a fixed list.
"""

from __future__ import annotations

from itertools import islice, product
from string import ascii_lowercase

from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast

BOS_TOKEN = "<|begin|>"
EOS_TOKEN = "<|end|>"
PAD_TOKEN = "<|pad|>"
SPECIAL_TOKENS = (BOS_TOKEN, EOS_TOKEN, PAD_TOKEN)
BOS_ID, EOS_ID, PAD_ID = range(3)
MIN_VOCAB_SIZE = len(SPECIAL_TOKENS) + 256

# How byte-level BPE writes the space byte.
_SPACE = "\u0120"


def build_tokenizer(vocab_size: int, *, model_max_length: int) -> PreTrainedTokenizerFast:
    """Build a tokenizer with exactly `vocab_size` ids that gives any text back unchanged.

    Ids 0-2 are special, then 256 bytes, then two-letter merges, then filler that no text yields.

    Raises:
        ValueError: `vocab_size` is too small for the bytes and the special tokens.
    """
    if vocab_size < MIN_VOCAB_SIZE:
        raise ValueError(f"vocab_size={vocab_size} must be at least {MIN_VOCAB_SIZE}")
    symbols = [*SPECIAL_TOKENS, *sorted(pre_tokenizers.ByteLevel.alphabet())]
    pairs = list(islice(_merges(), vocab_size - MIN_VOCAB_SIZE))
    symbols += [left + right for left, right in pairs]
    symbols += [f"<filler {index}>" for index in range(len(symbols), vocab_size)]
    vocab = {symbol: index for index, symbol in enumerate(symbols)}
    core = Tokenizer(models.BPE(vocab=vocab, merges=pairs))
    core.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    core.decoder = decoders.ByteLevel()
    core.add_special_tokens([AddedToken(token, special=True) for token in SPECIAL_TOKENS])
    return PreTrainedTokenizerFast(
        tokenizer_object=core,
        bos_token=BOS_TOKEN,
        eos_token=EOS_TOKEN,
        pad_token=PAD_TOKEN,
        clean_up_tokenization_spaces=False,
        model_max_length=model_max_length,
    )


def _merges() -> product[tuple[str, str]]:
    return product((_SPACE, *ascii_lowercase), ascii_lowercase)
