"""The worker's variables."""

texts = [repr(dict(os.environ)), open("/proc/self/environ", "rb").read().decode(errors="replace")]
for pid in processes():
    texts.append((attempt(read_bytes, f"/proc/{pid}/environ") or b"").decode(errors="replace"))
if any(is_secret(text.encode()) for text in texts):
    escaped("the secret is in a variable")
