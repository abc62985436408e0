# Checks X-Tool-Signature (envelope-v1) or CL-Signature (bare-v1) over the raw body, before any JSON parser.
# While a secret is replaced there are two v1: either is good.
import hashlib, hmac, re, time

def verify(secret: str, header: str, body: bytes, tolerance: int = 300) -> bool:
    parts = [part.partition("=") for part in header.split(",")]
    times = [value for name, _, value in parts if name == "t"]
    if not secret or len(times) != 1 or not re.fullmatch("[0-9]{1,12}", times[0]):
        return False
    if abs(time.time() - int(times[0])) > tolerance:
        return False
    expected = hmac.new(secret.encode(), times[0].encode() + b"." + body, hashlib.sha256).hexdigest()
    signatures = [value.encode(errors="replace") for name, _, value in parts if name == "v1"]
    return any(hmac.compare_digest(expected.encode(), value) for value in signatures)
