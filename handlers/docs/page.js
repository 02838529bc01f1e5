
// Remove the examples of optional parameters: Swagger UI fills them in and would send all filters and headers at once.
const unfilled = (document) => JSON.parse(JSON.stringify(document, (_, value) => {
  if (value?.in && value.name && !value.required) return { ...value, example: undefined, examples: undefined };
  return value;
}));
const page = document.querySelector("#api");
SwaggerUIBundle({
  domNode: page,
  url: page.dataset.document,
  plugins: [{ statePlugins: { spec: { wrapActions: { updateJsonSpec: (next) => (document) => next(unfilled(document)) } } } }],
  deepLinking: true,
  displayRequestDuration: true,
  tryItOutEnabled: true,
  defaultModelsExpandDepth: 0,
  validatorUrl: null,
});
