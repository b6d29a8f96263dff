// GraphiQL over this service. A token is entered as a header: {"authorization": "Bearer …"}.
'use strict';

// Where the service is: beside this page, whatever precedes it in the path.
const ENDPOINT = new URL('graphql', document.baseURI);

const EXAMPLE = `# Records by prefix, and what a search finds. A token goes into the headers below: {"authorization": "Bearer …"}
{
  records(first: 10, filter: { prefix: "" }) {
    edges { node { address kind status { state } head { id t } index { t } } }
    pageInfo { hasNextPage endCursor }
  }
}

# What changes, as it changes:
# subscription { changes { position address concern change watermark } }
`;

const isSubscription = (document, name) =>
  document?.definitions.some(
    (part) => part.kind === 'OperationDefinition' && part.operation === 'subscription' && (!name || part.name?.value === name),
  );

async function post(params, headers) {
  const answer = await fetch(ENDPOINT, {
    method: 'POST',
    headers: { 'content-type': 'application/json', ...headers },
    body: JSON.stringify(params),
    credentials: 'omit',
  });
  return answer.json();
}

// graphql-transport-ws: one socket for each subscription.
function subscribe(params, headers) {
  return {
    subscribe(observer) {
      const url = new URL(ENDPOINT);
      url.protocol = url.protocol === 'https:' ? 'wss:' : 'ws:';
      const socket = new WebSocket(url, 'graphql-transport-ws');
      const send = (message) => socket.send(JSON.stringify(message));
      let isOver = false;
      const end = (how) => {
        if (isOver) return;
        isOver = true;
        how();
        socket.close();
      };
      const token = headers.authorization ?? headers.Authorization;
      socket.onopen = () => send({ type: 'connection_init', payload: token ? { authorization: token } : {} });
      socket.onclose = (event) => end(() => observer.error(new Error(event.reason || 'the connection was closed')));
      socket.onmessage = ({ data }) => {
        const message = JSON.parse(data);
        if (message.type === 'connection_ack') send({ id: '1', type: 'subscribe', payload: params });
        else if (message.type === 'ping') send({ type: 'pong' });
        else if (message.type === 'next') observer.next(message.payload);
        else if (message.type === 'error') end(() => observer.next({ errors: message.payload }));
        else if (message.type === 'complete') end(() => observer.complete());
      };
      return {
        unsubscribe: () =>
          end(() => {
            if (socket.readyState === WebSocket.OPEN) send({ id: '1', type: 'complete' });
          }),
      };
    },
  };
}

const fetcher = (params, { headers = {}, documentAST } = {}) =>
  isSubscription(documentAST, params.operationName) ? subscribe(params, headers) : post(params, headers);

const root = ReactDOM.createRoot(document.getElementById('graphiql'));
root.render(React.createElement(GraphiQL, { fetcher, defaultQuery: EXAMPLE, shouldPersistHeaders: false }));
