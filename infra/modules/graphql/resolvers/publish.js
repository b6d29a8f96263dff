/**
 * Passes on what the stream consumer publishes: AppSync sends what this mutation returns to the subscribers of `changes`.
 *
 * Runs in AppSync (APPSYNC_JS), without a data source. Terraform puts in whom it is for: a policy for the whole API does not make a
 * caller a publisher.
 */
import { util } from '@aws-appsync/utils';

/** The beginning of the ARN of every session of the consumer's role. */
const PUBLISHER = '${publisher}';

export function request(ctx) {
  const caller = ctx.identity.userArn ?? '';
  if (!caller.startsWith(PUBLISHER)) {
    util.unauthorized();
  }
  return { payload: ctx.args.change };
}

export function response(ctx) {
  return ctx.result;
}
