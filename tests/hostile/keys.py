"""Creates a key and an administrator's token: writes the key set to the given file and prints the token."""

import json
import sys
import time

import jwt
from cryptography.hazmat.primitives.asymmetric import ec

key = ec.generate_private_key(ec.SECP256R1())
public = json.loads(jwt.algorithms.ECAlgorithm.to_jwk(key.public_key()))
with open(sys.argv[1], "w", encoding="utf-8") as file:
    json.dump({"keys": [public | {"kid": "test", "alg": "ES256", "use": "sig"}]}, file)
claims = {"sub": "schemathesis", "scope": "nameservice:admin", "exp": int(time.time()) + 86400}
print(jwt.encode(claims, key, algorithm="ES256", headers={"kid": "test"}))
