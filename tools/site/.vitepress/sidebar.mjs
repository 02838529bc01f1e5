import {existsSync, readdirSync, readFileSync} from 'node:fs'
import path from 'node:path'
import {slugify} from './markdown.mjs'

// pagesInOrder returns the groups of docs/README.md with their pages. It fails if a page is in no group.
export function pagesInOrder(docs) {
  const groups = readFileSync(docs + 'README.md', 'utf8').split(/^## /m).slice(1).map(section => {
    const [text] = section.split('\n', 1)
    const files = [...section.matchAll(/\]\(([^)#]+\.md)/g)].map(([, file]) => file)
    return {text, anchor: slugify(text), folder: path.dirname(files[0]), items: files.map(file => page(docs, file))}
  })
  complete(docs, groups)
  return groups
}

// page returns an entry. The pages of a folder with the same name are below the entry.
function page(docs, file) {
  const below = filesOf(docs, file.replace(/\.md$/, ''))
  return {
    text: title(docs, file),
    link: '/' + file.replace(/(README)?\.md$/, ''),
    ...below.length > 0 && {collapsed: true, items: below.map(each => page(docs, each))},
  }
}

function title(docs, file) {
  if (!existsSync(docs + file)) throw new Error(`docs/README.md links ${file}, which does not exist`)
  const [, heading] = /^# (.+)$/m.exec(readFileSync(docs + file, 'utf8')) ?? []
  if (!heading) throw new Error(`docs/${file} has no heading`)
  return heading.replaceAll('`', '')
}

function filesOf(docs, folder) {
  if (!existsSync(docs + folder)) return []
  return readdirSync(docs + folder).filter(name => name.endsWith('.md')).sort().map(name => `${folder}/${name}`)
}

function complete(docs, groups) {
  const listed = new Set(['/'])
  const add = ({link, items}) => { listed.add(link); items?.forEach(add) }
  groups.forEach(add)
  for (const name of readdirSync(docs, {recursive: true})) {
    const link = '/' + name.replace(/(README)?\.md$/, '')
    if (name.endsWith('.md') && !listed.has(link)) throw new Error(`docs/README.md does not link ${name}`)
  }
}
