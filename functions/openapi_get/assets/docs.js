// The page at /v1/docs: Swagger UI over the document of this very service. A token that is entered stays in the page's memory.

/** Heads come first in their group; the other operations are in the order of the document. */
const headsFirst = (a, b) => b.get('path').startsWith('/v1/heads') - a.get('path').startsWith('/v1/heads');

async function start() {
  const root = document.getElementById('docs');
  const dark = matchMedia('(prefers-color-scheme: dark)');
  const paint = () => document.documentElement.classList.toggle('dark-mode', dark.matches);
  dark.addEventListener('change', paint);
  paint();
  try {
    const answer = await fetch('openapi.json');
    if (!answer.ok) throw new Error(`openapi.json was answered ${answer.status}`);
    const spec = await answer.json();
    const settings = await fetch('../console/settings.json').then((it) => (it.ok ? it.json() : {})).catch(() => ({}));
    const beside = (path) => new URL(`../${path}`, document.baseURI).pathname;
    spec.info.description += `\n\n[The console](${beside('console')})${settings.graphiql ? ` · [GraphiQL](${beside('graphiql')})` : ''}`;
    // A proxy or a gateway may have a path before that of the service.
    spec.servers = [{ url: new URL('..', document.baseURI).pathname.replace(/\/$/, '') || '/' }];
    SwaggerUIBundle({
      spec,
      domNode: root,
      layout: 'BaseLayout',
      presets: [SwaggerUIBundle.presets.apis],
      deepLinking: true,
      docExpansion: 'list',
      operationsSorter: headsFirst,
      defaultModelsExpandDepth: 0,
      displayRequestDuration: true,
      persistAuthorization: false,
      // Nothing is sent to another host.
      validatorUrl: null,
    });
  } catch (error) {
    root.textContent = `The description of the API cannot be shown: ${error.message}`;
  }
}

start();
