// Adapts Markdown that is written for GitHub.

// slugify returns the same anchor for a heading as GitHub.
export function slugify(heading) {
  return heading.trim().toLowerCase().replace(/[^\p{L}\p{M}\p{N}\p{Pc} -]/gu, '').replaceAll(' ', '-')
}

// HTML elements that pages may contain. Other tags, such as the placeholder <id>, are shown as text.
const elements = new Set(('a b blockquote br code dd del details div dl dt em h1 h2 h3 h4 h5 h6 hr i img ins kbd li ol p picture pre q s ' +
  'samp source span strong sub summary sup table tbody td tfoot th thead tr tt ul var').split(' '))

// Languages of code that the highlighter does not know.
const unknown = new Set(['promql', 'redis'])

const tag = /<\/?([a-z][\w-]*)[^>]*>/gi

// plainMarkdown prevents Vue from interpreting templates and components in pages.
export function plainMarkdown(md) {
  const {rules} = md.renderer
  for (const name of ['text', 'code_inline', 'code_block']) {
    const rule = rules[name]
    rules[name] = (...given) => braces(rule(...given))
  }
  for (const name of ['html_inline', 'html_block']) {
    const html = rules[name]
    rules[name] = (...given) =>
      braces(html(...given).replace(tag, (whole, element) => elements.has(element.toLowerCase()) ? whole : md.utils.escapeHtml(whole)))
  }
  const fence = rules.fence
  rules.fence = (tokens, index, ...given) => {
    const token = tokens[index]
    const language = token.info.trim()
    if (language === 'mermaid') return `<Diagram source="${encodeURIComponent(token.content)}" />`
    if (unknown.has(language)) token.info = 'txt'
    return fence(tokens, index, ...given)
  }
}

function braces(html) {
  return html.replaceAll('{{', '&#123;&#123;')
}
