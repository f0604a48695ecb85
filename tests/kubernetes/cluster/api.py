"""The few requests that starting a cluster needs, and the kubeconfig that everybody else uses.

kubectl would do, but costs a third of a second a call; while waiting we ask many times.
"""

import base64
import http.client
import json
import ssl


class Api:
    """The API server on a port of 127.0.0.1, as the user of a client certificate."""

    def __init__(self, port, authority, user="admin"):
        self.port = port
        self.context = ssl.create_default_context(cafile=str(authority.folder / "ca.crt"))
        self.context.load_cert_chain(authority.folder / f"{user}.crt", authority.folder / f"{user}.key")

    def request(self, method, path, body=None):
        """(status, text). Status 0: nobody answered, yet."""
        connection = http.client.HTTPSConnection("127.0.0.1", self.port, timeout=10, context=self.context)
        try:
            headers = {"Content-Type": "application/json"} if body is not None else {}
            connection.request(method, path, None if body is None else json.dumps(body), headers)
            answer = connection.getresponse()
            return answer.status, answer.read().decode(errors="replace")
        except (OSError, http.client.HTTPException) as error:
            return 0, str(error)
        finally:
            connection.close()

    def get(self, path):
        """The object, or None if there is none or the server does not answer."""
        status, text = self.request("GET", path)
        return json.loads(text) if status == 200 else None

    def ready(self):
        return self.request("GET", "/readyz")[0] == 200

    def create(self, path, body):
        """True once it is there."""
        return self.request("POST", path, body)[0] in (201, 409)


def kubeconfig(path, server, authority, user):
    """A kubeconfig with everything inside: it can be copied to anywhere."""

    def inline(name):
        return base64.b64encode((authority.folder / name).read_bytes()).decode()

    path.write_text(json.dumps({  # JSON is YAML
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "divisi", "cluster": {"server": server, "certificate-authority-data": inline("ca.crt")}}],
        "users": [{"name": user, "user": {"client-certificate-data": inline(f"{user}.crt"),
                                          "client-key-data": inline(f"{user}.key")}}],
        "contexts": [{"name": "divisi", "context": {"cluster": "divisi", "user": user}}],
        "current-context": "divisi",
    }, indent=1) + "\n")
    path.chmod(0o600)
    return path
