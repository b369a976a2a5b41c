"""A result that the judge did not give."""

print('{"score": 1.0}')
print(json.dumps({"id": 1, "status": 0, "oom": False}))
sys.stderr.write('{"errno": 0}')
