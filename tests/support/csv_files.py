"""CSV files as people write them, and files that are none."""


def csv_text(x, *, header=""):
    """Rows of numbers, with all their digits."""
    return header + "".join(",".join(map(repr, row)) + "\n" for row in x.tolist())


GOOD = {
    "plain": lambda x: csv_text(x).encode(),
    "header": lambda x: csv_text(x, header="x\n").encode(),
    "quoted header": lambda x: csv_text(x, header='"weight, kg"\n').encode(),
    "byte order mark": lambda x: b"\xef\xbb\xbf" + csv_text(x).encode(),
    "byte order mark and header": lambda x: b"\xef\xbb\xbf" + csv_text(x, header="µ\n").encode(),
    "Windows": lambda x: csv_text(x, header="x\n").replace("\n", "\r\n").encode(),
    "no end of line at the end": lambda x: csv_text(x).rstrip("\n").encode(),
    "blank lines": lambda x: ("\n" + csv_text(x).replace("\n", "\n\n") + "  \n").encode(),
    "quotes and spaces": lambda x: "".join(f'" {value!r} "\n' for value in x[:, 0].tolist()).encode(),
}
"""How the same numbers may be written."""

BAD = {
    "empty": (b"", "holds no observations"),
    "blank": (b"\n \n\n", "holds no observations"),
    "byte order mark only": (b"\xef\xbb\xbf", "holds no observations"),
    "header only": (b"x\n", "holds no observations"),
    "text cell": (b"1.0\n2.0\noops\n4.0\n", "line 3: 'oops'"),
    "text cell after header and blank line": (b"x\n\n1.0\noops\n4.0\n", "line 4: 'oops'"),
    "two headers": (b"x\nkg\n1.0\n2.0\n", "line 2: 'kg'"),
    "empty cell": (b"x,y\n1.0,\n2.0,3.0\n", "line 2: ''"),
    "row of empty cells": (b"1.0,2.0\n,\n2.0,3.0\n", "line 2: ''"),
    "ragged": (b"1.0\n2.0,3.0\n4.0\n", "line 2: 2 columns where the first row has 1"),
    "header of another width": (b"x,y\n1.0\n2.0\n", "line 2: 1 columns where the first row has 2"),
    "too many columns": (b"1.0,2.0\n2.0,3.0\n4.0,4.0\n", "`x` must have 1 columns"),
    "semicolons": (b"x;y\n1.0;2.0\n", "line 2: '1.0;2.0' is not a number. Columns must be separated by commas"),
    "tabs": (b"x\ty\n1.0\t2.0\n", "line 2: '1.0\\t2.0' is not a number. Columns must be separated by commas"),
    "decimal comma": (b"1,5\n2,5\n", "Are these decimal commas?"),
    "decimal comma below a header": (b"x\n1,5\n2,5\n", "line 2: 2 columns where the first row has 1. Columns must be"),
    "decimal comma in quotes": (b'x\n1.5\n"2,5"\n', "line 3: '2,5' is not a number. Columns must be separated"),
    "decimal comma and semicolons": (b"x;y\n1,5;2,0\n", "decimals by points"),
    "missing in the first line": (b"NA\n1.0\n2.0\n", "line 1: 'NA' is a missing value"),
    "empty in the first line": (b'""\n1.0\n2.0\n', "line 1: '' is a missing value"),
    "empty in a later line": (b'1.0\n""\n2.0\n', "line 2: '' is a missing value"),
    "missing in a later line": (b"x\n1.0\nnull\n2.0\n", "line 3: 'null' is a missing value"),
    "a header that may be an observation": (b"0\n1.5\n2.5\n", "--header yes or --header no"),
    "a first line of both": (b"time,0.5\n1.5,2.5\n", "line 1: 'time'"),
    "a header with a gap": (b"x,\n1.5,2.5\n", "column 2 has no name"),
    "an index of names": (b",x\nanna,1.5\nberta,2.5\n", "the first column has no name in the header"),
    "row names without a header": (b"x\na,1.5\n", "line 2: 2 columns where the first row has 1"),
    "digits of another script": ("1.5\n\u0661\n".encode(), "line 2: '\u0661' is not a finite number"),
    "digits in groups": (b"1_000\n2_000\n3_000\n", "line 2: '2_000'"),
    "NaN": (b"1.0\nnan\n2.0\n", "line 2: 'nan'"),
    "NaN in a file with header": (b"x\n1.0\n2.0\nNaN\n", "line 4: 'NaN'"),
    "infinity": (b"1.0\n2.0\n-inf\n", "line 3: '-inf'"),
    "too large": (b"1.0\n2.0\n1e999\n", "line 3: '1e999'"),
    "not UTF-8": ("1.0\nÆ\n".encode("latin-1"), "UTF-8"),
    "UTF-16": ("1.0\n2.0\n".encode("utf-16"), "UTF-8"),
    "a ZIP archive, as .xlsx is": (b"PK\x03\x04\x14\x00\x06\x00\x08\x00\x00\x00!\x00\xb5\xe3", "UTF-8"),
    "a cell without end": (b'1.0\n"' + b"2" * 200_000, "is not a CSV file"),
    "ties": (b"1.0\n" * 30 + b"2.0\n" * 3, "`x` has too many ties"),
    "constant": (b"1.0\n" * 30, "`x` has a constant column"),
}
"""What cannot be read or used, and what is said about it."""
