"""A certificate authority of an instance, on the openssl command line.

  authority = Authority.create(folder)
  authority.issue("admin", "admin", groups=["system:masters"])                 folder/admin.crt, admin.key
  authority.issue("short", "short", lifetime=datetime.timedelta(seconds=30))   for tests of expiry and rotation

ca.crt and ca.key stay in the folder for as long as the instance lives.
"""

import datetime
import subprocess

from .problem import Problem
from .toolchain import last_line

DAY = datetime.timedelta(days=1)
# `openssl ca` is the one command that signs with a lifetime in seconds; this is what it wants to know.
CONFIGURATION = """
[ca]
default_ca = default
[default]
database = {folder}/index
rand_serial = yes
certificate = {folder}/ca.crt
private_key = {folder}/ca.key
new_certs_dir = {folder}/issued
default_md = sha256
unique_subject = no
policy = policy
email_in_dn = no
[policy]
organizationName = optional
commonName = supplied
[leaf]
basicConstraints = critical,CA:false
keyUsage = critical,digitalSignature
extendedKeyUsage = serverAuth,clientAuth
{names}
"""
CURVE = ["-pkeyopt", "ec_paramgen_curve:prime256v1"]
NEW_KEY = ["-newkey", "ec", *CURVE, "-nodes"]


def _openssl(*arguments):
    done = subprocess.run(["openssl", *map(str, arguments)], stdin=subprocess.DEVNULL, capture_output=True, text=True)
    if done.returncode != 0:
        raise Problem(f"openssl {arguments[0]} failed: {last_line(done.stderr)}")


class Authority:
    def __init__(self, folder):
        self.folder = folder

    @staticmethod
    def create(folder):
        folder.mkdir(mode=0o700)
        (folder / "issued").mkdir()
        (folder / "index").touch()
        _openssl("req", "-x509", *NEW_KEY, "-keyout", folder / "ca.key", "-out", folder / "ca.crt", "-days", "3650",
                 "-subj", "/CN=divisi-test-ca", "-addext", "keyUsage=critical,digitalSignature,keyCertSign,cRLSign")
        # Service account tokens are signed with a key pair of their own, which no certificate belongs to.
        _openssl("genpkey", "-algorithm", "EC", *CURVE, "-out", folder / "accounts.key")
        _openssl("pkey", "-in", folder / "accounts.key", "-pubout", "-out", folder / "accounts.pub")
        return Authority(folder)

    def issue(self, file, user, groups=(), names=(), lifetime=DAY):
        """folder/FILE.crt and FILE.key for the user, a member of the groups; a server of the names, each
        written the way openssl wants it (IP:127.0.0.1, DNS:localhost)."""
        certificate, private, request = (self.folder / f"{file}.{suffix}" for suffix in ("crt", "key", "csr"))
        subject = "".join(f"/O={group}" for group in groups) + f"/CN={user}"
        _openssl("req", "-new", *NEW_KEY, "-keyout", private, "-out", request, "-subj", subject)
        configuration = self.folder / f"{file}.cnf"
        extra = f"subjectAltName = {','.join(names)}" if names else ""
        configuration.write_text(CONFIGURATION.format(folder=self.folder, names=extra))
        now = datetime.datetime.now(datetime.timezone.utc)
        # Clocks of one machine agree, but a second may have begun since the certificate was asked for.
        begin, end = ((now + shift).strftime("%Y%m%d%H%M%SZ") for shift in (-datetime.timedelta(seconds=5), lifetime))
        _openssl("ca", "-batch", "-notext", "-config", configuration, "-extensions", "leaf", "-in", request,
                 "-out", certificate, "-startdate", begin, "-enddate", end)
        request.unlink()
        configuration.unlink()
        return certificate, private
