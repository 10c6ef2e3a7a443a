"""Results as pandas tables; pandas is imported only when it is needed."""

from collections.abc import Sequence
from typing import Any

from nsmbayes.errors import InputError


def data_frame(rows: Sequence[dict[str, Any]]) -> Any:
    """A DataFrame with one row for each dictionary."""
    try:
        import pandas
    except ImportError as error:
        raise InputError("A DataFrame needs pandas: `pip install pandas`, or take table(), which is text.") from error
    return pandas.DataFrame(list(rows))
