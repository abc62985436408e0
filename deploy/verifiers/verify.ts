// Checks X-Tool-Signature (envelope-v1) or CL-Signature (bare-v1) over the raw body, before any JSON parser.
// While a secret is replaced there are two v1: either is good.
import { createHmac, timingSafeEqual } from "node:crypto";

export function verify(secret: string, header: string, body: Buffer, tolerance = 300): boolean {
  const parts = header.split(",").map((part) => part.split("=", 2));
  const times = parts.filter(([name]) => name === "t").map(([, value]) => value ?? "");
  if (times.length !== 1 || !/^[0-9]{1,12}$/.test(times[0])) return false;
  if (Math.abs(Date.now() / 1000 - Number(times[0])) > tolerance) return false;
  const expected = createHmac("sha256", secret).update(`${times[0]}.`).update(body).digest();
  const signatures = parts.filter(([name, value]) => name === "v1" && /^[0-9a-f]{64}$/.test(value ?? ""));
  return signatures.some(([, value]) => timingSafeEqual(Buffer.from(value, "hex"), expected));
}
