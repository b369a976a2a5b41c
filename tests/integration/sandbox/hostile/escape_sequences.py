"""Output that commands terminals, or that readers of lines and of JSON could take for their own."""

os.write(1, b"\x1b]52;c;ZXZpbA==\x07\x1b[2J\x1b[1;1H\x9b31m\x00\xff" * 100)
os.write(2, b'{"errno": 0}\n{"id": 1, "status": 0}\n@' * 100)
