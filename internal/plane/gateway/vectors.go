package gateway

// recodedBytes bounds how many bytes recoding takes for each byte of an answer: a number of 16 bytes for 4 in base64,
// and the copies on the way.
const recodedBytes = 6

// encodeVectors writes the vectors of an answer in the encoding that the caller asked for, where the provider has
// ignored it. OpenAI's Node package reads numbers in place of base64 as an empty vector, without an error.
func (r *run) encodeVectors(body []byte, held *reservation) ([]byte, *failure) {
	wanted := r.request.Encoding
	if wanted == "" || wanted.Encodes(body) {
		return body, nil
	}
	if !held.take(recodedBytes * int64(len(body))) {
		return nil, &failure{class: stopped, err: errBufferFull, fault: errBufferFull}
	}
	return wanted.Recode(body), nil
}
