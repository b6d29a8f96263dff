// The page at /v1/docs: Swagger UI over the document of this very service. A token that is entered stays in the page's memory.

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
    // A proxy or a gateway may have a path before that of the service.
    spec.servers = [{ url: new URL('..', document.baseURI).pathname.replace(/\/$/, '') || '/' }];
    SwaggerUIBundle({
      spec,
      domNode: root,
      layout: 'BaseLayout',
      presets: [SwaggerUIBundle.presets.apis],
      deepLinking: true,
      docExpansion: 'list',
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
