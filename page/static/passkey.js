// SPDX-License-Identifier: Apache-2.0
// The two ceremonies of a passkey. Both require that the authenticator verifies who is there. JSON is written here and not by
// toJSON(), which older browsers and some password managers lack.

import { base64url, bytes } from "/verify.js";

const utf8 = new TextEncoder();
const patience = 5 * 60 * 1000; // milliseconds that a person has at the authenticator
const credentials = (ids) => (ids || []).map((id) => ({ type: "public-key", id: bytes(id) }));

/** supported says whether this browser has passkeys here. */
export const supported = () => Boolean(window.isSecureContext && window.PublicKeyCredential);

/** make registers a new passkey by sentinel's options (wire.EnrolResp) and returns the credential's JSON as bytes. */
export async function make(options) {
  const c = await navigator.credentials.create({ publicKey: {
    challenge: bytes(options.challenge),
    rp: { id: options.rp, name: "Doorward" },
    user: { id: bytes(options.user), name: options.name, displayName: options.name },
    pubKeyCredParams: [-7, -8, -257].map((alg) => ({ type: "public-key", alg })), // ES256, EdDSA, RS256
    excludeCredentials: credentials(options.exclude),
    authenticatorSelection: { residentKey: "required", requireResidentKey: true, userVerification: "required" },
    attestation: "none",
    timeout: patience,
  } });
  return utf8.encode(JSON.stringify({ ...outer(c), response: {
    clientDataJSON: base64url(c.response.clientDataJSON),
    attestationObject: base64url(c.response.attestationObject),
    transports: c.response.getTransports?.() || [],
  } }));
}

/** sign has a passkey sign a challenge and returns the assertion's JSON as bytes. Without ids any passkey of this page may. */
export async function sign(challenge, rp, ids, signal) {
  const c = await navigator.credentials.get({ signal, publicKey: {
    challenge, rpId: rp, allowCredentials: credentials(ids), userVerification: "required", timeout: patience,
  } });
  const r = c.response;
  return utf8.encode(JSON.stringify({ ...outer(c), response: {
    clientDataJSON: base64url(r.clientDataJSON),
    authenticatorData: base64url(r.authenticatorData),
    signature: base64url(r.signature),
    userHandle: r.userHandle ? base64url(r.userHandle) : undefined,
  } }));
}

const outer = (c) => ({
  id: c.id, rawId: base64url(c.rawId), type: c.type, clientExtensionResults: {},
  authenticatorAttachment: c.authenticatorAttachment || undefined,
});
