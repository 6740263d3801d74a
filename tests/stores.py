"""An object store on loopback, which speaks the language of S3."""

import logging
import os
import socket

BUCKET = "nearcast"


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


PORT = free_port()
# Set before anything starts, so that processes that are started by a test (Spark's, for instance) have it too.
ENVIRONMENT = {
    "AWS_ENDPOINT_URL": f"http://127.0.0.1:{PORT}",
    "AWS_ACCESS_KEY_ID": "nobody",
    "AWS_SECRET_ACCESS_KEY": "nothing",
    "AWS_REGION": "us-east-1",
}


def start_s3():
    """Start a server, and make a bucket in it; return the server."""
    from urllib.request import Request, urlopen

    from moto.server import ThreadedMotoServer

    logging.getLogger("werkzeug").setLevel(logging.ERROR)  # it names every request
    os.environ["MOTO_ALLOW_NONEXISTENT_REGION"] = "true"
    server = ThreadedMotoServer("127.0.0.1", PORT, verbose=False)
    server.start()
    urlopen(Request(f"http://127.0.0.1:{PORT}/{BUCKET}", method="PUT")).close()
    return server
