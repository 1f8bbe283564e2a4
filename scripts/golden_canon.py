"""golden_canon.py — which tokens count as one for n-gram memories, made by MaxText:

    PYTHONPATH=MAXTEXT/src python golden_canon.py FOLDER..

in an environment with MaxText's libraries; MAXTEXT is a checkout of e591f30c. For each folder of a tokenizer
canon.txt in it: a line with the padding token's id, then the number of each id."""
import sys

import transformers

from maxtext.layers.engram import CompressedTokenizer


def main():
    for folder in sys.argv[1:]:
        tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
        numbers = CompressedTokenizer(tokenizer).lookup_table_np
        pad = -1 if tokenizer.pad_token_id is None else tokenizer.pad_token_id
        with open(f"{folder}/canon.txt", "w") as file:
            print(pad, *numbers, file=file)
        print(folder, len(numbers), "tokens,", numbers.max() + 1, "numbers")


main()
