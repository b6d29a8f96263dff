// Keeps the store true: a snapshot, then the feed from its position. Over events if they can be streamed, else by long
// polls. A lost connection is resumed at the last position; one that has expired begins again with a snapshot.

import { Problem, call, getRecord, send } from './api.js';
import { parse } from './json.js';
import { beforeReading, clear, keepOnly, state, takeChanges, takeOlder, takeRecord, takeRecords, touch } from './store.js';

/** Streams that are silent for longer than this are taken for dead: the service sends something every 15 seconds. */
const SILENCE = 40_000;
/** How long a stream may take to begin. A proxy that buffers whole answers passes on nothing at all. */
const BEGINNING = 8_000;
const POLL_WAIT = 20;
const [FIRST_PAUSE, LONGEST_PAUSE] = [400, 10_000];
/** Up to this many records the list of a browser is quick; further records are found by their prefix. */
export const MOST_RECORDS = 50_000;

let controller = new AbortController();
let canStream = true;

const sleep = (milliseconds, signal) =>
  new Promise((done) => {
    const timer = setTimeout(done, milliseconds);
    signal.addEventListener('abort', () => (clearTimeout(timer), done()), { once: true });
  });

function link(name, problem = null) {
  state.link = name;
  state.problem = problem;
  touch();
}

/** Starts over, with another token for instance. */
export function restart() {
  controller.abort();
  controller = new AbortController();
  clear();
  run(controller.signal);
}

async function run(signal) {
  let [pause, whole] = [FIRST_PAUSE, false];
  link('loading');
  while (!signal.aborted) {
    try {
      if (!whole) await snapshot(signal);
      whole = true;
      await (canStream ? stream(signal) : poll(signal));
      // The service ends each stream after a while, and expects its reader back.
      pause = FIRST_PAUSE;
      await sleep(pause / 2, signal);
    } catch (error) {
      if (signal.aborted) return;
      if (error instanceof Problem && (error.status === 401 || error.status === 403)) return link('denied', error);
      if (error instanceof Problem && [404, 405, 501].includes(error.status) && whole) {
        canStream = false;
        continue;
      }
      // The position is not in this feed: it has expired, or the service has begun a new feed.
      if (error instanceof Problem && ['expired', 'position-ahead'].includes(error.type)) whole = false;
      if (!(error instanceof Problem)) console.error(error);
      const heardMeanwhile = Date.now() - state.heardAt < 2000;
      pause = heardMeanwhile ? FIRST_PAUSE : Math.min(LONGEST_PAUSE, pause * 2);
      link('reconnecting', error);
      await sleep(pause * (0.5 + Math.random() / 2), signal);
    }
  }
}

async function snapshot(signal) {
  let cursor;
  const seen = new Set();
  state.complete = false;
  let position;
  do {
    const query = new URLSearchParams({ limit: '1000', ...(cursor && { cursor }) });
    const page = await call('GET', `snapshot?${query}`, { signal });
    position ??= page.position;
    for (const record of page.records) seen.add(record.address);
    takeRecords(page.records);
    cursor = page.cursor;
    state.heardAt = Date.now();
  } while (cursor && seen.size < MOST_RECORDS);
  keepOnly(seen);
  state.complete = !cursor;
  Object.assign(state, { position, cursor: null, changes: [], older: 0 });
  touch();
}

/** Where to continue: with the timeline if the service has them. */
const at = () => state.cursor ?? String(state.position);

function moveTo(position, cursor) {
  if (position < state.position) return;
  state.position = position;
  state.cursor = cursor ?? state.cursor;
}

/** Applies changes, and rereads the records that they do not show in full. */
function take(changes, signal) {
  for (const address of takeChanges(changes)) {
    readAgain(address, signal);
  }
}

/** Reads a record that the feed does not show in full. A failure that passes leaves it as it is: its next change reads it again. */
async function readAgain(address, signal) {
  const begun = beforeReading();
  try {
    takeRecord(address, await getRecord(address, { signal }), begun);
  } catch (error) {
    if (error.status === 404) takeRecord(address, null, begun);
  }
}

async function poll(signal) {
  while (!signal.aborted) {
    link('polling');
    const query = new URLSearchParams({ after: at(), limit: 1000, wait: POLL_WAIT });
    const { changes, position, cursor } = await call('GET', `changes?${query}`, { signal });
    state.heardAt = Date.now();
    take(changes, signal);
    moveTo(position, cursor);
  }
}

async function stream(signal) {
  const silence = new AbortController();
  const end = () => silence.abort();
  signal.addEventListener('abort', end, { once: true });
  let timer = setTimeout(end, BEGINNING);
  let begun = false;
  try {
    const headers = { accept: 'text/event-stream', 'last-event-id': at() };
    const response = await send('GET', `events?after=${encodeURIComponent(at())}`, { headers, signal: silence.signal });
    if (!(response.headers.get('content-type') ?? '').startsWith('text/event-stream')) {
      throw new Problem(501, { title: 'No stream' });
    }
    const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
    let text = '';
    for (;;) {
      const { done, value } = await reader.read();
      if (done) return;
      if (!begun) link('live');
      begun = true;
      clearTimeout(timer);
      timer = setTimeout(end, SILENCE);
      state.heardAt = Date.now();
      const blocks = (text + value).split('\n\n');
      text = blocks.pop();
      events(blocks, signal);
      touch();
    }
  } catch (error) {
    if (signal.aborted) throw error;
    if (silence.signal.aborted && !begun) throw new Problem(501, { title: 'No stream' });
    if (error instanceof Problem) throw error;
    throw new Problem(0, { title: 'Connection lost', detail: 'The change stream was interrupted.' });
  } finally {
    clearTimeout(timer);
    signal.removeEventListener('abort', end);
  }
}

/** Reads the blocks of an event stream. */
function events(blocks, signal) {
  const changes = [];
  let [position, cursor] = [state.position, null];
  let problem;
  for (const block of blocks) {
    let [name, data] = ['', ''];
    for (const line of block.split('\n')) {
      const colon = line.indexOf(':');
      const [field, value] = [line.slice(0, colon), line.slice(colon + 1).replace(/^ /, '')];
      if (field === 'event') name = value;
      else if (field === 'data') data += value;
      else if (field === 'id' && /^([0-9a-f]+:)?\d+$/.test(value)) {
        position = Number(value.split(':').at(-1));
        cursor = value.includes(':') ? value : null;
      }
    }
    if (name === 'change') changes.push(parse(data));
    else if (name === 'expired') problem = new Problem(410, { type: 'expired', title: 'Expired' });
    else if (name === 'error') problem = new Problem(503, parse(data));
  }
  take(changes, signal);
  moveTo(position, cursor);
  if (problem) throw problem;
}

/** Reads the changes before those that are known. Returns how many there were. */
export async function older(count = 500) {
  const first = state.changes[0]?.position ?? state.position + 1;
  let after = Math.max(0, first - 1 - count);
  for (let attempt = 0; attempt < 2; attempt += 1) {
    try {
      const found = [];
      // An answer may have fewer changes than were asked for.
      while (after < first - 1) {
        const { changes, position } = await call('GET', `changes?${new URLSearchParams({ after, limit: first - 1 - after })}`);
        if (position <= after) break;
        found.push(...changes);
        after = position;
      }
      return takeOlder(found);
    } catch (error) {
      if (error.type !== 'expired' || !(error.document.oldest > 0)) throw error;
      after = error.document.oldest - 1;
    }
  }
  return 0;
}
