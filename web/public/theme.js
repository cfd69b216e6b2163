// Sets the chosen theme before the first paint. Without a choice the page follows the system.
try {
  var theme = localStorage.getItem('theme')
  if (theme === 'dark' || theme === 'light') document.documentElement.dataset.theme = theme
} catch (e) { /* storage is off: follow the system */ }
