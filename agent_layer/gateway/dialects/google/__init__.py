"""Google's Gemini API as a dialect: requests, answers, names."""
