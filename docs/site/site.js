/* site.js - the search. index.js has a row for each section: page, title, id, heading, text. A section is found if
 * every word of the query begins a word in it; what is in its heading counts most. Without scripts the box stays hidden. */
'use strict';
(() => {
  const MOST = 12, AROUND = 60;
  const root = document.body.dataset.root;
  const box = document.getElementById('search'), list = document.getElementById('found');
  const rows = siteIndex.map(([page, title, id, heading, text]) => ({page, title, id, heading, text}));

  const beginnings = (words, text) => {
    const places = [];
    for (const word of words) {
      const pattern = new RegExp('(^|[^\\p{L}\\p{N}])' + word.replace(/[.*+?^${}()|[\]\\]/g, '\\$&'), 'iu');
      const match = pattern.exec(text);
      places.push(match ? match.index + match[1].length : -1);
    }
    return places;
  };

  const score = (row, words) => {
    const heading = beginnings(words, row.heading), title = beginnings(words, row.title), text = beginnings(words, row.text);
    let sum = 0;
    for (let i = 0; i < words.length; i++) {
      const points = (heading[i] >= 0 ? 8 : 0) + (title[i] >= 0 ? 4 : 0) + (text[i] >= 0 ? 1 : 0);
      if (!points) return null;
      sum += points;
    }
    return {row, sum, at: Math.max(0, text.find((place) => place >= 0) ?? 0)};
  };

  const found = (query) => {
    const words = query.split(/\s+/).filter(Boolean);
    if (!words.length) return [];
    return rows.map((row) => score(row, words)).filter(Boolean).sort((a, b) => b.sum - a.sum).slice(0, MOST);
  };

  const item = ({row, at}) => {
    const li = document.createElement('li'), link = document.createElement('a'), words = document.createElement('small');
    link.href = root + row.page + (row.id ? '#' + row.id : '');
    link.textContent = row.heading === row.title ? row.title : row.title + ': ' + row.heading;
    const from = Math.max(0, at - AROUND);
    words.textContent = (from ? '… ' : '') + row.text.slice(from, at + 2 * AROUND);
    li.append(link, words);
    return li;
  };

  const show = () => {
    const results = found(box.value.trim());
    list.replaceChildren(...results.map(item));
    if (box.value.trim() && !results.length) list.append('Nothing is found.');
    list.hidden = !box.value.trim();
  };

  box.addEventListener('input', show);
  document.addEventListener('keydown', (event) => {
    if (event.key === '/' && document.activeElement !== box) {
      event.preventDefault();
      box.focus();
    } else if (event.key === 'Escape' && document.activeElement === box) {
      box.value = '';
      show();
    } else if (event.key === 'Enter' && document.activeElement === box) {
      list.querySelector('a')?.click();
    }
  });
  box.hidden = false;
})();
