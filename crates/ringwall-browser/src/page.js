// Functions that run inside a page, in an isolated world: scripts of the page can neither see nor
// change them. All results are bounded. `key` is a random name under which they are found in this
// world only. `names` are the names of password and payment fields.
(key, names) => {
  const MAX_FRAMES = 50, MAX_NODES = 20000, MAX_DEPTH = 250, MAX_MILLISECONDS = 4000, MAX_TEXT = 200000, MAX_HTML = 1000000, MAX_OUTLINE = 100000;
  let references = new Map();

  class Problem extends Error {
    constructor(code, detail) { super(code); this.code = code; this.detail = detail; }
  }
  const collapse = (text, max = 200) => {
    const flat = String(text ?? '').slice(0, max * 10).replace(/\s+/g, ' ').trim();
    return (flat.length > max ? flat.slice(0, max) + '…' : flat).toWellFormed();
  };
  const same = (text) => collapse(text, 2000).toLowerCase();
  const cut = (text, max) => ({ content: text.slice(0, max).toWellFormed(), truncated: text.length > max });

  // This document and those of frames from the same origin; other frames are not accessible.
  const documents = () => {
    const found = [document];
    for (let at = 0; at < found.length; at++) {
      for (const frame of found[at].querySelectorAll('iframe, frame')) {
        if (found.length >= MAX_FRAMES) return found;
        if (frame.contentDocument?.documentElement) found.push(frame.contentDocument);
      }
    }
    return found;
  };
  const isVisible = (element) =>
    element.checkVisibility({ visibilityProperty: true }) && [...element.getClientRects()].some((box) => box.width > 0 && box.height > 0);
  const describe = (element) => {
    const id = element.id ? '#' + collapse(element.id, 40) : '';
    return `<${collapse(element.localName, 40)}${id}>`;
  };

  const CLICKABLE = 'a[href], button, summary, label, option, input[type=submit], input[type=button], input[type=reset], input[type=image], [role=button], [role=link], [role=tab], [role=menuitem], [role=option], [role=checkbox], [role=radio], [role=switch], [onclick]';
  const byText = (wanted) => {
    wanted = same(wanted);
    if (!wanted) return null;
    let containing = null, plain = null, plainContaining = null, seen = 0;
    for (const page of documents()) {
      for (const element of page.querySelectorAll(CLICKABLE)) {
        if (++seen > MAX_NODES) break;
        const text = same(element.innerText || element.value || element.getAttribute('aria-label') || element.title);
        if (!text.includes(wanted) || !isVisible(element)) continue;
        if (text === wanted) return element;
        containing ??= element;
      }
      const walker = page.createTreeWalker(page.documentElement, NodeFilter.SHOW_TEXT);
      for (let node; (node = walker.nextNode()) && ++seen < 2 * MAX_NODES;) {
        const element = node.parentElement, text = same(node.data);
        if (!element || !text.includes(wanted) || !isVisible(element)) continue;
        if (text === wanted) plain ??= element;
        plainContaining ??= element;
      }
    }
    return containing ?? plain ?? plainContaining;
  };
  const focused = () => {
    let element = document.activeElement;
    for (let depth = 0; element && depth < MAX_FRAMES; depth++) {
      const inner = element.shadowRoot?.activeElement ?? element.contentDocument?.activeElement;
      if (!inner) break;
      element = inner;
    }
    return element ?? document.body;
  };
  const find = (target) => {
    let element = null;
    if (target.reference !== undefined) {
      element = references.get(target.reference)?.deref();
      if (!element?.isConnected) throw new Problem('stale');
    } else if (target.css !== undefined) {
      try {
        for (const page of documents()) if ((element = page.querySelector(target.css))) break;
      } catch (error) { throw new Problem('selector', collapse(error.message)); }
    } else if (target.text !== undefined) {
      element = byText(target.text);
    } else {
      element = focused();
    }
    if (!element) throw new Problem('none');
    return element;
  };

  // Same rules as in the policy: names of up to four ASCII letters match whole words only, because
  // they are parts of many other words; several words match consecutive words.
  const wordsOf = (text) => text.slice(0, 500).replace(/(\p{Ll})(\p{Lu})/gu, '$1 $2').toLowerCase().split(/[^\p{L}\p{N}]+/u).filter(Boolean);
  const isNamed = (words, name) => name.includes(' ')
    ? words.some((_, first) => words.slice(first, first + name.length).join('').startsWith(name.replaceAll(' ', '')))
    : words.some((word) => /^[\x20-\x7e]{1,4}$/.test(name) ? word === name : word.includes(name));
  const areNamed = (said, list) => said.some((words) => list.some((name) => isNamed(words, name)));

  // Kind of a field, from its own description. A frame of another site cannot be inspected and
  // often contains payment fields, so it counts as one.
  const kindOf = (element) => {
    if (/^(iframe|frame|object|embed)$/.test(element.localName) && !element.contentDocument) return 'payment';
    if (element.localName === 'input' && element.type === 'password') return 'password';
    const uses = same(element.getAttribute('autocomplete')).split(' ');
    if (uses.some((use) => use === 'current-password' || use === 'new-password')) return 'password';
    if (uses.some((use) => use.startsWith('cc-'))) return 'payment';
    const isField = /^(input|textarea|select)$/.test(element.localName) || element.isContentEditable;
    if (!isField) return 'ordinary';
    const masked = element.ownerDocument.defaultView?.getComputedStyle(element).webkitTextSecurity;
    if (masked && masked !== 'none') return 'password';
    const said = ['name', 'id', 'aria-label', 'placeholder', 'title', 'data-testid'].map((name) => element.getAttribute(name) ?? '');
    said.push(...[...(element.labels ?? [])].slice(0, 3).map((label) => label.textContent.slice(0, 200)));
    const words = said.map(wordsOf);
    if (areNamed(words, names.payments)) return 'payment';
    if (areNamed(words, names.passwords)) return 'password';
    return 'ordinary';
  };
  const fieldOf = (target) => {
    const element = find(target);
    return element.localName === 'label' && element.control ? element.control : element;
  };
  const refuseUnready = (element) => {
    if (!isVisible(element)) throw new Problem('unready', 'it is not visible');
    if (element.matches(':disabled') || element.getAttribute('aria-disabled') === 'true') throw new Problem('unready', 'it is disabled');
  };
  const demandKind = (element, expected) => {
    const kind = kindOf(element);
    if (kind !== expected) throw new Problem('kind', kind);
  };
  const tell = (element, ...names) => names.forEach((name) => element.dispatchEvent(new Event(name, { bubbles: true, composed: true })));
  // Uses the setter of the prototype, because the page may have overridden the element's own
  // property.
  const setValue = (element, text) => {
    const view = element.ownerDocument.defaultView;
    const home = element.localName === 'textarea' ? view.HTMLTextAreaElement : view.HTMLInputElement;
    Object.getOwnPropertyDescriptor(home.prototype, 'value').set.call(element, text);
  };

  // Position of an element in the window, across all enclosing frames.
  const boxOf = (element) => {
    const box = element.getBoundingClientRect();
    let x = box.x, y = box.y;
    for (let view = element.ownerDocument.defaultView; view && view !== window && view.frameElement; view = view.parent) {
      const around = view.frameElement.getBoundingClientRect();
      x += around.x + view.frameElement.clientLeft;
      y += around.y + view.frameElement.clientTop;
    }
    return { x, y, width: box.width, height: box.height };
  };

  const ROLES = { button: 'button', summary: 'button', textarea: 'textbox', h1: 'heading', h2: 'heading', h3: 'heading', h4: 'heading', h5: 'heading', h6: 'heading', img: 'image', svg: 'image', ul: 'list', ol: 'list', li: 'listitem', nav: 'navigation', main: 'main', header: 'banner', footer: 'contentinfo', aside: 'complementary', form: 'form', table: 'table', tr: 'row', td: 'cell', th: 'columnheader', dialog: 'dialog', details: 'group', fieldset: 'group', p: 'paragraph', iframe: 'iframe', frame: 'iframe', progress: 'progressbar', meter: 'meter', video: 'video', audio: 'audio', article: 'article', blockquote: 'blockquote' };
  const INPUTS = { checkbox: 'checkbox', radio: 'radio', range: 'slider', number: 'spinbutton', search: 'searchbox', submit: 'button', button: 'button', reset: 'button', image: 'button', file: 'file', color: 'color', hidden: '' };
  const WIDGETS = new Set(['link', 'button', 'textbox', 'searchbox', 'checkbox', 'radio', 'switch', 'slider', 'spinbutton', 'combobox', 'listbox', 'option', 'tab', 'menuitem', 'menuitemcheckbox', 'menuitemradio', 'treeitem', 'file', 'color', 'iframe']);
  const NAMED_BY_CONTENT = new Set(['link', 'button', 'heading', 'option', 'tab', 'menuitem', 'menuitemcheckbox', 'menuitemradio', 'treeitem', 'checkbox', 'radio', 'switch', 'cell', 'columnheader', 'rowheader', 'gridcell', 'tooltip']);
  const INLINE = new Set(['span', 'b', 'i', 'em', 'strong', 'code', 'small', 'sub', 'sup', 'label', 'abbr', 'time', 'mark', 'u', 's', 'font', 'kbd', 'var', 'q', 'cite', 'bdi', 'bdo', 'wbr', 'samp', 'del', 'ins']);
  const UNSEEN = new Set(['script', 'style', 'noscript', 'template', 'head', 'meta', 'link', 'title']);
  const INNER = 'a[href], button, input, select, textarea, summary, iframe, [role], [tabindex], [onclick], [contenteditable]';

  // Frames are listed with any role attribute, so that their content is not overlooked.
  const isFrame = (element) => /^(iframe|frame)$/.test(element.localName) || (element.localName === 'object' && element.contentWindow);
  const roleOf = (element) => {
    const tag = element.localName;
    if (isFrame(element)) return 'iframe';
    const said = collapse(element.getAttribute('role'), 40).split(' ')[0].toLowerCase();
    if (said) return said === 'none' || said === 'presentation' ? '' : said.replace(/[^a-z]/g, '');
    if (tag === 'a') return element.hasAttribute('href') ? 'link' : '';
    if (tag === 'input') return INPUTS[element.type] ?? 'textbox';
    if (tag === 'select') return element.multiple || element.size > 1 ? 'listbox' : 'combobox';
    if (ROLES[tag]) return Object.hasOwn(ROLES, tag) ? ROLES[tag] : '';
    if (element.isContentEditable && !element.parentElement?.isContentEditable) return 'textbox';
    return '';
  };
  const nameOf = (element, role) => {
    const ids = collapse(element.getAttribute('aria-labelledby')).split(' ').filter(Boolean).slice(0, 5);
    const labelled = collapse(ids.map((id) => element.getRootNode().getElementById?.(id)?.textContent ?? '').join(' '));
    if (labelled) return labelled;
    const label = collapse(element.getAttribute('aria-label'));
    if (label) return label;
    if (element.labels?.length) {
      const text = collapse([...element.labels].slice(0, 3).map((one) => one.innerText).join(' '));
      if (text) return text;
    }
    if (element.localName === 'input' && INPUTS[element.type] === 'button') return collapse(element.value || element.alt || element.type);
    if (element.localName === 'img' || element.localName === 'input') {
      const alt = collapse(element.getAttribute('alt'));
      if (alt) return alt;
    }
    if (NAMED_BY_CONTENT.has(role)) {
      const text = collapse(element.innerText) || collapse([...element.querySelectorAll('img[alt], svg title, [aria-label]')].slice(0, 5).map((one) => one.getAttribute('alt') ?? one.getAttribute('aria-label') ?? one.textContent).join(' '));
      if (text) return text;
    }
    if (element.localName === 'fieldset') return collapse(element.querySelector('legend')?.innerText);
    if (element.localName === 'table') return collapse(element.caption?.innerText);
    return collapse(element.getAttribute('placeholder') || element.getAttribute('title'));
  };
  const statesOf = (element, role) => {
    const states = [];
    const aria = (name) => element.getAttribute('aria-' + name);
    if (role === 'heading') states.push('level=' + (Number(aria('level')) || Number(element.localName[1]) || 2));
    if (element.matches(':disabled') || aria('disabled') === 'true') states.push('disabled');
    if (element.checked === true || aria('checked') === 'true') states.push('checked');
    if (aria('selected') === 'true') states.push('selected');
    if (aria('pressed') === 'true') states.push('pressed');
    if (aria('expanded') === 'true' || (element.localName === 'summary' && element.parentElement?.open)) states.push('expanded');
    if (aria('expanded') === 'false') states.push('collapsed');
    if (element.required || aria('required') === 'true') states.push('required');
    if (element.readOnly) states.push('readonly');
    if (element === focused() && WIDGETS.has(role)) states.push('focused');
    const kind = WIDGETS.has(role) && role !== 'iframe' ? kindOf(element) : 'ordinary';
    if (kind !== 'ordinary') states.push(kind);
    return states;
  };
  const valueOf = (element, role) => {
    if (element.localName === 'select') {
      const options = [...element.options].slice(0, 30).map((option) => JSON.stringify(collapse(option.label, 60)));
      if (element.options.length > 30) options.push('…');
      const chosen = [...element.selectedOptions].slice(0, 30).map((option) => JSON.stringify(collapse(option.label, 60)));
      return `${chosen.join(', ') || 'nothing'} of ${options.join(', ')}`;
    }
    if (!['textbox', 'searchbox', 'spinbutton', 'slider', 'combobox', 'color'].includes(role)) return '';
    const value = element.isContentEditable ? element.innerText : element.value;
    if (!value) return '';
    return kindOf(element) === 'ordinary' ? JSON.stringify(collapse(value)) : '(hidden)';
  };

  const outline = (first) => {
    references = new Map();
    const began = performance.now();
    const lines = [];
    let next = first, visited = 0, length = 0, isCut = false, loose = '', looseDepth = 0;
    const put = (line) => {
      length += line.length + 1;
      if (length > MAX_OUTLINE) isCut = true; else lines.push(line);
    };
    const flush = () => {
      const text = collapse(loose, 1000);
      loose = '';
      if (text) put('  '.repeat(looseDepth) + '- text: ' + text);
    };
    const walk = (node, depth, level, isNamed) => {
      if (isCut) return;
      if (++visited > MAX_NODES || level > MAX_DEPTH || ((visited & 255) === 0 && performance.now() - began > MAX_MILLISECONDS)) {
        isCut = true;
        return;
      }
      if (node.nodeType === Node.TEXT_NODE) {
        if (!isNamed && loose.length < 2000) {
          if (!loose) looseDepth = depth;
          loose += node.data.slice(0, 2000);
        }
        return;
      }
      if (node.nodeType !== Node.ELEMENT_NODE || UNSEEN.has(node.localName)) return;
      const style = node.checkVisibility({ visibilityProperty: true });
      const contents = !style && node.ownerDocument.defaultView?.getComputedStyle(node).display === 'contents';
      if ((!style && !contents) || node.getAttribute('aria-hidden') === 'true') return;
      if (node.localName === 'br') { loose += ' '; return; }
      const role = roleOf(node);
      const isPointer = !role && !isNamed && (node.hasAttribute('onclick') || (node.tabIndex >= 0 && node.hasAttribute('tabindex')));
      const isWidget = WIDGETS.has(role) || isPointer;
      const isPlainImage = role === 'image' && !nameOf(node, role);
      const isShown = (role && !isPlainImage && !(isNamed && !isWidget)) || isPointer;
      let below = depth, isNamedBelow = isNamed;
      if (isShown) {
        flush();
        const name = nameOf(node, role), hasInner = node.querySelector(INNER) !== null;
        let line = '  '.repeat(depth) + '- ' + (role || 'clickable');
        if (name || isPointer) line += ' ' + JSON.stringify(name || collapse(node.innerText));
        for (const state of statesOf(node, role)) line += ` [${state}]`;
        if (isWidget) {
          const reference = 'e' + next++;
          references.set(reference, new WeakRef(node));
          line += ` [ref=${reference}]`;
        }
        const value = valueOf(node, role);
        if (value) line += ': ' + value;
        if (role === 'link') line += ' -> ' + collapse(node.getAttribute('href'), 300);
        const isForeign = isFrame(node) && !node.contentDocument;
        if (isForeign) line += ` (frame of another site: ${collapse(node.src || node.data || 'about:srcdoc', 300)}, not shown)`;
        put(line);
        below = depth + 1;
        isNamedBelow = isNamed || (NAMED_BY_CONTENT.has(role) && name !== '') || isPointer;
        if (node.localName === 'select' || node.localName === 'textarea' || node.localName === 'svg' || (role === 'textbox' && node.isContentEditable)) return;
        if (isNamedBelow && !hasInner && !node.shadowRoot) return;
        if (isFrame(node)) {
          if (node.contentDocument?.body) { walk(node.contentDocument.body, below, level + 1, false); flush(); }
          return;
        }
      } else if (!INLINE.has(node.localName)) {
        flush();
      }
      const children = node.shadowRoot ? node.shadowRoot.childNodes
        : node.localName === 'slot' && node.assignedNodes().length ? node.assignedNodes() : node.childNodes;
      for (const child of children) {
        walk(child, below, level + 1, isNamedBelow);
        if (isCut) break;
      }
      if (isShown || !INLINE.has(node.localName)) flush();
    };
    if (document.body) walk(document.body, 0, 0, false);
    flush();
    return { content: lines.join('\n').toWellFormed(), truncated: isCut, next };
  };

  const scroller = () => {
    let element = document.elementFromPoint(innerWidth / 2, innerHeight / 2);
    for (; element; element = element.parentElement) {
      const style = getComputedStyle(element);
      if (/auto|scroll/.test(style.overflowY + style.overflowX) && (element.scrollHeight > element.clientHeight || element.scrollWidth > element.clientWidth)) return element;
    }
    return document.scrollingElement ?? document.documentElement;
  };

  const functions = {
    where: () => String(location.href).slice(0, 8192).toWellFormed(),
    kind: ({ target }) => kindOf(fieldOf(target)),
    isThere: ({ target }) => isVisible(find(target)),
    hasText: ({ text }) => {
      const flat = (long) => long.slice(0, 5000000).replace(/\s+/g, ' ').trim().toLowerCase();
      return documents().some((page) => flat(page.body?.innerText ?? '').includes(flat(text)));
    },
    settle: () => new Promise((done) => setTimeout(() => setTimeout(() => done(null), 0), 0)),
    text: () => cut(document.body?.innerText ?? '', MAX_TEXT),
    html: () => {
      const kind = document.doctype ? `<!DOCTYPE ${document.doctype.name}>\n` : '';
      return cut(kind + (document.documentElement?.outerHTML ?? ''), MAX_HTML);
    },
    outline: ({ first }) => outline(first),
    // Point to click: the center of the element, if it is not covered.
    place: ({ target }) => {
      const element = find(target);
      if (element.localName === 'option') throw new Problem('unfit', 'choose an option with select');
      refuseUnready(element);
      element.scrollIntoView({ block: 'center', inline: 'center', behavior: 'instant' });
      const page = element.ownerDocument, view = page.defaultView;
      const boxes = [...element.getClientRects()].filter((box) => box.width > 0 && box.height > 0);
      const local = boxes[0] ?? element.getBoundingClientRect();
      const x = local.x + local.width / 2, y = local.y + local.height / 2;
      let hit = page.elementFromPoint(x, y);
      while (hit?.shadowRoot?.elementFromPoint(x, y) && hit.shadowRoot.elementFromPoint(x, y) !== hit) hit = hit.shadowRoot.elementFromPoint(x, y);
      const isOurs = hit && (element.contains(hit) || hit.contains(element) || [...(element.labels ?? [])].some((label) => label.contains(hit)) || hit.getRootNode().host === element || element.getRootNode().host === hit);
      if (!hit) throw new Problem('unready', 'its center is outside of the window');
      if (!isOurs) throw new Problem('unready', 'it is covered by ' + describe(hit));
      const box = boxOf(element), whole = element.getBoundingClientRect();
      return { x: box.x + (x - whole.x), y: box.y + (y - whole.y) };
    },
    box: ({ target }) => {
      const element = find(target);
      if (!isVisible(element)) throw new Problem('unready', 'it is not visible');
      element.scrollIntoView({ block: 'center', inline: 'center', behavior: 'instant' });
      const box = boxOf(element);
      return { x: box.x + scrollX, y: box.y + scrollY, width: box.width, height: box.height };
    },
    // Checks the kind of the field before focusing it, after focusing it and after entering the
    // text, because handlers of the page run in between.
    fill: ({ target, text, expected }) => {
      const element = fieldOf(target);
      const isText = element.localName === 'textarea' || (element.localName === 'input' && !/^(checkbox|radio|button|submit|reset|image|file|hidden)$/.test(element.type));
      if (!isText && !element.isContentEditable) throw new Problem('other', describe(element));
      refuseUnready(element);
      if (element.readOnly) throw new Problem('unfit', 'it is read-only');
      demandKind(element, expected);
      element.scrollIntoView({ block: 'center', inline: 'center', behavior: 'instant' });
      element.focus();
      if (element.getRootNode().activeElement !== element) throw new Problem('unfit', 'it does not take the focus');
      demandKind(element, expected);
      if (isText) element.select();
      else element.ownerDocument.defaultView.getSelection().selectAllChildren(element);
      const page = element.ownerDocument;
      const isEmpty = isText ? element.value === '' : element.innerText.trim() === '';
      if (text !== '') page.execCommand('insertText', false, text);
      else if (!isEmpty) page.execCommand('delete');
      if (isText && kindOf(element) === expected && ((element.value === '') !== (text === ''))) {
        setValue(element, text);
        tell(element, 'input');
      }
      if (kindOf(element) !== expected) {
        const kind = kindOf(element);
        if (isText) setValue(element, ''); else element.textContent = '';
        throw new Problem('kind', kind);
      }
      if (isText && text !== '' && element.value === '') throw new Problem('unfit', 'it does not accept this text');
      tell(element, 'change');
      return null;
    },
    select: ({ target, values, expected }) => {
      const element = fieldOf(target);
      if (element.localName !== 'select') throw new Problem('other', describe(element));
      refuseUnready(element);
      demandKind(element, expected);
      if (!element.multiple && values.length > 1) throw new Problem('unfit', 'it takes one value');
      const options = [...element.options];
      const chosen = values.map((value) => {
        const option = options.find((one) => one.value === value) ?? options.find((one) => same(one.label) === same(value));
        if (!option || option.disabled) throw new Problem('option', [collapse(value), options.slice(0, 30).map((one) => JSON.stringify(collapse(one.label, 60))).join(', ')]);
        return option;
      });
      element.focus();
      demandKind(element, expected);
      for (const option of options) option.selected = chosen.includes(option);
      tell(element, 'input', 'change');
      return [...element.selectedOptions].slice(0, 1000).map((option) => collapse(option.value, 1000));
    },
    scrollTo: ({ target }) => {
      find(target).scrollIntoView({ block: 'center', inline: 'center', behavior: 'instant' });
      return { x: scrollX, y: scrollY };
    },
    scrollBy: ({ x, y }) => {
      const element = scroller();
      element.scrollBy({ left: x, top: y, behavior: 'instant' });
      return { x: element.scrollLeft, y: element.scrollTop };
    },
    fileField: ({ target }) => fieldOf(target),
    takesFiles: ({ target, count }) => {
      const element = fieldOf(target);
      if (element.localName !== 'input' || element.type !== 'file') throw new Problem('other', describe(element));
      if (count > 1 && !element.multiple) throw new Problem('unfit', 'it takes one file');
      return null;
    },
  };
  const answer = (name, arguments) => {
    try {
      const value = functions[name](arguments);
      return value instanceof Promise ? value.then((value) => ({ value })) : value?.nodeType === Node.ELEMENT_NODE ? value : { value };
    } catch (error) {
      return { problem: error instanceof Problem ? error.code : 'page', detail: error instanceof Problem ? error.detail : collapse(error?.message ?? error) };
    }
  };
  Object.defineProperty(globalThis, key, { value: answer });
}
