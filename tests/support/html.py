"""Pages and pictures, as tests read them."""

from html.parser import HTMLParser


class Page(HTMLParser):
    """The tags, the attributes, the ids and the text of a page, and its tables row by row."""

    def __init__(self, path):
        super().__init__()
        self.tags, self.attributes, self.text, self.rows = [], [], [], []
        self.feed(path.read_text(encoding="utf-8"))
        self.close()

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        self.attributes += [(tag, name, value or "") for name, value in attrs]
        if tag == "tr":
            self.rows.append([])
        if tag in ("td", "th"):
            self.rows[-1].append("")

    def handle_startendtag(self, tag, attrs):
        self.handle_starttag(tag, attrs)

    def handle_data(self, data):
        self.text.append(data)
        if self.rows and self.rows[-1] and self.tags[-1] in ("td", "th"):
            self.rows[-1][-1] += data

    def row(self, first):
        (found,) = [row for row in self.rows if row and row[0] == first]
        return found


def ink(pixels):
    """The fraction of pixels that are not white."""
    return float((pixels[..., :3].min(axis=-1) < 0.97).mean())
