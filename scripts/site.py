#!/usr/bin/env python3
"""site.py OUT — the documents as a folder of HTML: every page of docs, and README.md and its like, with navigation, anchors and a
search that needs no network. Without OUT it only checks.

    Markdown    cmark-gfm (Debian), with tables; raw HTML is an error
    navigation  docs/README.md: a heading a kind, a link a page. Every page of docs must be there, once
    links       to a page or heading, to a file of the sources, which becomes a page too, or to the web. The words docs/NAME.md become links
    anchors     as GitHub makes them of headings, so that links work there as here
    search      index.js has a row for each section; docs/site/site.js looks in it

Errors name file and heading, and the exit code is 1: a link to what is not there, an anchor that no heading makes, a page that
the navigation lacks.
"""
import html
import html.parser
import json
import pathlib
import posixpath
import re
import string
import subprocess
import sys

TOP = pathlib.Path(__file__).resolve().parent.parent
HOME = "README.md"
NAVIGATION = "docs/README.md"
PATTERNS = ["*.md", "docs/*.md", "docs/adding/*.md", "bench/*.md", "tests/golden/*.md"]
MENTION = re.compile(r"\b(?:docs/[\w/]+\.md|(?:README|CONTRIBUTING|CHANGELOG)\.md)\b")


def slug(text):
    """The anchor that GitHub makes of a heading."""
    return re.sub(r"[^\w\- ]", "", text.strip().lower()).replace(" ", "-")


def page_of(source):
    """Where a source's page is, below OUT."""
    if source == HOME:
        return "index.html"
    return source[:-3] + ".html" if source.endswith(".md") else source + ".html"


def way(source, target):
    """The relative address of one page from another."""
    return posixpath.relpath(page_of(target), posixpath.dirname(page_of(source)) or ".")


class Page(html.parser.HTMLParser):
    """One document. It is read once: headings get anchors, links are kept and pointed at pages, the text of sections is collected."""

    def __init__(self, source):
        super().__init__(convert_charrefs=False)
        self.source, self.title = source, source
        self.out, self.anchors, self.links, self.errors = [], {}, [], []
        self.sections = []  # [anchor, heading, words]
        self.heading = None  # (tag, where its attributes go, words) while one is open
        self.in_link = False
        made = subprocess.run(["cmark-gfm", "-e", "table", TOP / source], check=True, capture_output=True, text=True).stdout
        self.sections.append(["", source, []])
        self.feed(made)
        self.close()

    def anchor(self, words):
        """Of a heading; a second one of the same words gets a number."""
        base = slug(words)
        n = self.anchors.get(base, -1) + 1
        self.anchors[base] = n
        return base if not n else f"{base}-{n}"

    def target(self, address):
        """Where a link leads: a page or file of the sources and an anchor, or None of the web."""
        if re.match(r"[a-z]+:", address):
            return None
        path, _, anchor = address.partition("#")
        path = posixpath.normpath(posixpath.join(posixpath.dirname(self.source), path)) if path else self.source
        return path, anchor

    def link(self, address):
        """The address in the site of one in the sources, which is kept to be checked."""
        target = self.target(address)
        if not target:
            return address
        path, anchor = target
        self.links.append((path, anchor, address))
        return way(self.source, path) + ("#" + anchor if anchor else "")

    def mentions(self, text):
        """Names of documents in a text become links."""
        if self.in_link or self.heading:
            return text

        def linked(match):
            path = match.group()
            if path == self.source:
                return path
            self.links.append((path, "", path))
            return f'<a href="{way(self.source, path)}">{path}</a>'

        return MENTION.sub(linked, text)

    def handle_starttag(self, tag, attributes):
        attributes = dict(attributes)
        if tag in ("h1", "h2", "h3", "h4"):
            self.heading = (tag, len(self.out), [])
            self.out.append("")
            return
        if tag == "a":
            self.in_link = True
            attributes["href"] = self.link(attributes["href"])
        if tag == "img":
            path, _ = self.target(attributes["src"])
            self.links.append((path, "", attributes["src"]))
            attributes["src"] = posixpath.relpath(path, posixpath.dirname(page_of(self.source)) or ".")
        self.out.append("<" + tag + "".join(f' {k}="{html.escape(v or "")}"' for k, v in attributes.items()) + ">")

    def handle_startendtag(self, tag, attributes):
        self.handle_starttag(tag, attributes)

    def handle_endtag(self, tag):
        if self.heading and tag == self.heading[0]:
            _, at, words = self.heading
            words = "".join(words)
            anchor = self.anchor(words)
            self.out[at] = f'<{tag} id="{anchor}">'
            self.out.append(f' <a class="anchor" href="#{anchor}" aria-label="link to this heading">#</a>')
            self.sections.append([anchor, words, []])
            if tag == "h1" and self.title == self.source:
                self.title = words
            self.heading = None
        if tag == "a":
            self.in_link = False
        self.out.append(f"</{tag}>")
        self.sections[-1][2].append(" " if tag in ("p", "li", "td", "th", "pre") else "")

    def text(self, shown, words):
        self.out.append(shown)
        (self.heading[2] if self.heading else self.sections[-1][2]).append(words)

    def handle_data(self, data):
        self.text(self.mentions(data), data)

    def handle_entityref(self, name):
        self.text(f"&{name};", html.unescape(f"&{name};"))

    def handle_charref(self, name):
        self.text(f"&#{name};", html.unescape(f"&#{name};"))

    def handle_comment(self, data):
        self.errors.append(f"{self.source}: raw HTML in section \"{self.sections[-1][1]}\": a < that means itself is \\<")

    def rows(self):
        """Of the index: page, title, anchor, heading, text."""
        for anchor, heading, words in self.sections:
            text = " ".join("".join(words).split())
            if text or anchor:
                yield [page_of(self.source), self.title, anchor, heading if anchor else self.title, text]


def documents():
    return sorted({path.relative_to(TOP).as_posix() for pattern in PATTERNS for path in TOP.glob(pattern)})


def kinds(page):
    """The navigation: (kind, its pages), from headings and links."""
    found = []
    for line in (TOP / page.source).read_text().splitlines():
        if line.startswith("## "):
            found.append((line[3:], []))
        for name, address in re.findall(r"\[([^\]]+)\]\(([^)]+)\)", line) if found and line.startswith(("- ", "| ")) else []:
            target = page.target(address)
            if target:
                found[-1][1].append((name, target[0]))
    return found


def check(pages, navigation):
    errors = [error for page in pages.values() for error in page.errors]
    for page in pages.values():
        for path, anchor, address in page.links:
            if not (TOP / path).is_file():
                errors.append(f"{page.source}: link to \"{address}\": there is no {path}")
            elif anchor and (path not in pages or anchor not in {section[0] for section in pages[path].sections}):
                errors.append(f"{page.source}: link to \"{address}\": {path} has no heading #{anchor}")
    listed = [path for _, links in navigation for _, path in links]
    for source in pages:
        times = listed.count(source)
        if source.startswith("docs/") and source != NAVIGATION and times != 1:
            errors.append(f"{NAVIGATION}: {source} is listed {times} times, wanted once")
    return errors


def navigation_of(source, kinds_of_pages):
    lines = []
    for kind, links in kinds_of_pages:
        lines.append(f"<h2>{html.escape(kind)}</h2>\n<ul>")
        for name, path in links:
            here = ' aria-current="page"' if path == source else ""
            lines.append(f'<li><a href="{way(source, path)}"{here}>{html.escape(name)}</a></li>')
        lines.append("</ul>")
    return "\n".join(lines)


def put(out, name, text):
    path = out / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def write(out, pages, navigation):
    template = string.Template((TOP / "docs/site/page.html").read_text())
    version = re.search(r'define MX_VERSION\s+"(.*?)"', (TOP / "include/mx/base.h").read_text()).group(1)
    written = set()

    def put_page(source, title, body):
        root = posixpath.relpath(".", posixpath.dirname(page_of(source)) or ".") + "/"
        put(out, page_of(source), template.substitute(title=html.escape(title), root="" if root == "./" else root, version=version, source=source,
                                                      navigation=navigation_of(source, navigation), body=body))
        written.add(source)

    for page in pages.values():
        put_page(page.source, page.title, "".join(page.out))
    for path in sorted({path for page in pages.values() for path, _, _ in page.links} - written):
        if path.endswith((".png", ".jpg")):
            (out / path).parent.mkdir(parents=True, exist_ok=True)
            (out / path).write_bytes((TOP / path).read_bytes())
        else:
            put_page(path, path, f"<h1>{path}</h1>\n<pre><code>{html.escape((TOP / path).read_text())}</code></pre>")
    for name in ("site.css", "site.js"):
        put(out, name, (TOP / "docs/site" / name).read_text())
    rows = [row for page in pages.values() for row in page.rows()]
    put(out, "index.js", "const siteIndex = [\n" + ",\n".join(json.dumps(row, ensure_ascii=False) for row in rows) + "\n];\n")
    return len(written), len(rows)


def main():
    pages = {source: Page(source) for source in documents()}
    navigation = kinds(pages[NAVIGATION])
    errors = check(pages, navigation)
    for error in errors:
        print(error, file=sys.stderr)
    if errors:
        return 1
    if len(sys.argv) > 1:
        n_pages, n_rows = write(pathlib.Path(sys.argv[1]), pages, navigation)
        print(f"{sys.argv[1]}: {n_pages} pages, {n_rows} sections, {sum(len(page.links) for page in pages.values())} links checked")
    return 0


if __name__ == "__main__":
    sys.exit(main())
