// Checks X-Tool-Signature (envelope-v1) or CL-Signature (bare-v1) over the raw body, before any JSON parser.
// While a secret is replaced there are two v1: either is good.
import { createHmac, timingSafeEqual } from "node:crypto";

export function verify(secret: string, header: string, body: Buffer, tolerance = 300): boolean {
  const values = (of: string) => header.split(",").filter((part) => part.startsWith(of)).map((part) => part.slice(of.length));
  const [t = "", another] = values("t=");
  if (secret === "" || another !== undefined || !/^[0-9]{1,12}$/.test(t)) return false;
  if (Math.abs(Date.now() / 1000 - Number(t)) > tolerance) return false;
  const expected = createHmac("sha256", secret).update(`${t}.`).update(body).digest();
  const signatures = values("v1=").filter((value) => /^[0-9a-f]{64}$/.test(value));
  return signatures.some((value) => timingSafeEqual(Buffer.from(value, "hex"), expected));
}
