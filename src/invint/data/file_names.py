"""What the name of a file says: whether it is one of a picture, and how it is shown to a reader."""

SUFFIXES = {
    ".png": "PNG",
    ".jpg": "JPEG",
    ".jpeg": "JPEG",
    ".jpe": "JPEG",
    ".jfif": "JPEG",
    ".bmp": "BMP",
    ".dib": "BMP",
    ".tif": "TIFF",
    ".tiff": "TIFF",
    ".webp": "WebP",
}
FOREIGN = {  # pictures of other kinds: they are named, not passed over as other files are
    *(".gif", ".heic", ".heif", ".avif", ".svg", ".ico", ".jp2", ".j2k", ".jxl", ".psd", ".tga"),
    *(".ppm", ".pgm", ".pbm", ".pnm", ".exr", ".hdr", ".dcm", ".raw", ".cr2", ".cr3", ".nef"),
    *(".arw", ".dng", ".xcf", ".pcx"),
}


def suffix(name: str) -> str:
    """Return the ending of a file name in small letters, with its dot."""
    stem, dot, ending = name.rpartition(".")
    return f".{ending.lower()}" if dot and stem and "/" not in ending else ""


def shown(name: str) -> str:
    """Return a file name fit for a terminal: other bytes and control characters escaped."""
    text = name.encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace")
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)
