// An OpenID provider: node provider.mjs KEYS REDIRECT_URIS [PORT]. It writes its public keys to the file KEYS, and prints its issuer when it
// listens. The redirect URIs are at 127.0.0.1 without a port, which is any then (RFC 8252, 7.3). Whoever signs in is taken for who they say they are; the scope `nameservice:write` is granted to all but those called reader…,
// and refresh tokens to all but those called guest….
// Access tokens are JSON Web Tokens for the resource `nameservice`, and live for ten minutes.

import { writeFileSync } from 'node:fs';
import { createServer } from 'node:http';
import { exportJWK, generateKeyPair } from 'jose';
import Provider from 'oidc-provider';

const [keys, redirect, port = '0'] = process.argv.slice(2);
const RESOURCE = 'urn:nameservice';
const SCOPES = 'nameservice:read nameservice:write nameservice:admin';
const lifetime = 600;

const pair = await generateKeyPair('RS256', { extractable: true });
const name = { kid: 'k', use: 'sig', alg: 'RS256' };
writeFileSync(keys, JSON.stringify({ keys: [{ ...(await exportJWK(pair.publicKey)), ...name }] }));

const server = createServer();
await new Promise((listening) => server.listen(Number(port), '127.0.0.1', listening));
const issuer = `http://127.0.0.1:${server.address().port}`;

const provider = new Provider(issuer, {
  clients: [
    {
      client_id: 'console',
      token_endpoint_auth_method: 'none',
      application_type: 'native',
      redirect_uris: redirect.split(' '),
      grant_types: ['authorization_code', 'refresh_token'],
      response_types: ['code'],
    },
  ],
  jwks: { keys: [{ ...(await exportJWK(pair.privateKey)), ...name }] },
  cookies: { keys: ['of the test'] },
  scopes: ['openid', 'offline_access'],
  clientBasedCORS: (context, origin) => redirect.split(' ').some((url) => new URL(url).hostname === new URL(origin).hostname),
  pkce: { required: () => true },
  issueRefreshToken: async (context, client, code) => !code.accountId.startsWith('guest'),
  ttl: { AccessToken: lifetime, IdToken: 600, Interaction: 600, Session: 3600, Grant: 3600, RefreshToken: 3600 },
  findAccount: async (context, id) => ({
    accountId: id,
    claims: async () => ({ sub: id, preferred_username: id }),
  }),
  claims: { openid: ['sub', 'preferred_username'] },
  conformIdTokenClaims: false,
  features: {
    devInteractions: { enabled: true },
    resourceIndicators: {
      enabled: true,
      defaultResource: () => RESOURCE,
      useGrantedResource: () => true,
      getResourceServerInfo: () => ({
        scope: SCOPES,
        audience: 'nameservice',
        accessTokenTTL: lifetime,
        accessTokenFormat: 'jwt',
        jwt: { sign: { alg: 'RS256' } },
      }),
    },
  },
});
server.on('request', provider.callback());
console.log(`issuer ${issuer}`);
