import {existsSync, statSync} from 'node:fs'
import path from 'node:path'

export const repository = 'https://github.com/forgerun/forgerun'

const absolute = /^(?:[a-z][a-z0-9+.-]*:|\/\/|#)/i

// rewriteLinks replaces links to files and folders outside docs with links to the repository on GitHub. It fails if the file does not
// exist. VitePress checks the links to pages.
export function rewriteLinks(md, {root, docs}) {
  md.core.ruler.push('repository_links', state => {
    const from = state.env.realPath ?? state.env.path
    for (const block of state.tokens) {
      for (const token of block.children ?? []) {
        if (token.type !== 'link_open') continue
        token.attrSet('href', target(token.attrGet('href'), from, root, docs))
      }
    }
  })
}

function target(href, from, root, docs) {
  if (absolute.test(href)) return href
  const [, name, rest] = /^([^?#]*)(.*)$/.exec(href)
  let file = path.resolve(path.dirname(from), decodeURI(name))
  if (!file.startsWith(root)) throw new Error(`${from}: ${href} leads out of the repository`)
  const inDocs = (file + '/').startsWith(docs)
  const folder = existsSync(file) && statSync(file).isDirectory()
  if (inDocs && folder && existsSync(path.join(file, 'README.md'))) file = path.join(file, 'README.md')
  if (inDocs && file.endsWith('.md')) {
    const page = path.relative(path.dirname(from), file).replace(/(^|\/)README\.md$/, '$1index.md')
    return encodeURI(page) + rest
  }
  if (!existsSync(file)) throw new Error(`${from}: ${href} does not exist`)
  return `${repository}/${folder ? 'tree' : 'blob'}/main/${encodeURI(path.relative(root, file))}${rest}`
}
