// https://github.com/stripe/stripe-node#usage
import Stripe from "stripe";
import { each, sleep, url } from "./each.mjs";

const { hostname, port } = new URL(url);
const stripe = new Stripe("key", { host: hostname, port, protocol: "http" });

await each(async (name) => {
  let payout = await stripe.payouts.create({ amount: 1100, currency: "usd", description: name });
  while (!["paid", "failed", "canceled"].includes(payout.status)) {
    await sleep(1000);
    payout = await stripe.payouts.retrieve(payout.id);
  }
  return payout.status;
});
