"""The API of an instance over one kept connection: kubectl takes a process a question, and these tests ask many."""

import http.client
import json
import ssl
import urllib.parse

GROUP = "/apis/diengine.opendilab.org/v2alpha1"
MERGE = "application/merge-patch+json"


class Refused(Exception):
    def __init__(self, status, text):
        super().__init__(f"{status}: {text[:300]}")
        self.status = status


class Api:
    def __init__(self, instance):
        self.where = urllib.parse.urlsplit(instance.server).netloc
        self.trust = ssl.create_default_context(cafile=instance.folder / "pki" / "ca.crt")
        self.headers = {"Authorization": f"Bearer {instance.token}"}
        self.connection = None

    def connect(self):
        return http.client.HTTPSConnection(self.where, context=self.trust, timeout=60)

    def call(self, method, path, body=None, kind="application/json"):
        """(status, value); a connection that has gone meanwhile is made anew once."""
        data = None if body is None else json.dumps(body)
        for last in (False, True):
            self.connection = self.connection or self.connect()
            try:
                self.connection.request(method, path, data, {**self.headers, "Content-Type": kind})
                answer = self.connection.getresponse()
                text = answer.read()
                break
            except (http.client.HTTPException, OSError):
                self.connection.close()
                self.connection = None
                if last:
                    raise
        try:
            return answer.status, json.loads(text or b"null")
        except ValueError:
            return answer.status, text.decode()

    def must(self, method, path, body=None, kind="application/json"):
        status, value = self.call(method, path, body, kind)
        if status >= 300:
            raise Refused(status, json.dumps(value))
        return value

    def watch(self, path):
        """Every event since now, as the server tells it, until the connection ends."""
        connection = self.connect()
        try:
            connection.request("GET", path + ("&" if "?" in path else "?") + "watch=true", headers=self.headers)
            for line in connection.getresponse():
                yield json.loads(line)
        finally:
            connection.close()
