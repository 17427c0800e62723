"""The requests of Redis's protocol, for the clients of the scripts here."""


def request(*words):
    """Returns a command as bytes."""
    words = [str(word).encode() for word in words]
    return b"*%d\r\n" % len(words) + b"".join(b"$%d\r\n%s\r\n" % (len(word), word) for word in words)
